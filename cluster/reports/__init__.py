"""Results for people and programs: tables, plots (which need matplotlib) and JSON files."""
