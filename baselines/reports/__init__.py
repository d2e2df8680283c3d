"""What people look at: tables and figures of runs, models and partitions."""
