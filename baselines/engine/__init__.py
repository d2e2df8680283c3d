"""How a run goes, round by round, and what it leaves on disk."""
