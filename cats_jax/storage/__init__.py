"""Files that are written whole or not at all, folders of tables, and what a run was made from."""
