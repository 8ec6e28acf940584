"""A campaign against exactness: what an engine says in company, after drafts and losses, beside what it says alone."""
