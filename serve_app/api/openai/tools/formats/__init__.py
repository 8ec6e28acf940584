"""How families of models write tool calls: one file each, behind ``base.ToolFormat``."""
