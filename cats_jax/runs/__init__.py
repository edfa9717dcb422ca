"""Run folders: rows and stored trees of finished searches, written, read and merged."""
