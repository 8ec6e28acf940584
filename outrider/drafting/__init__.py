"""How far a device drafts: what it knows of a token before it is drawn, and when it stops."""
