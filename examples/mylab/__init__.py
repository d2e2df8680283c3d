"""Your own options, outside the repository: copy and rename this folder."""
