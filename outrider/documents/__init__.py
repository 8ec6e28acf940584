"""Files that operators write: read as YAML, and what is wrong with them said in one form."""
