"""Options of your own, outside the repository: copy this folder, rename it, and go."""
