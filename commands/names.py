"""The names of all commands: each is the function of its name in the file of its name here."""

NAMES = (
    *("audit", "diff", "plan", "reconcile"),
    *("convert", "evaluate", "heads", "uptrain"),
    *("models", "families", "devices", "rules", "explain", "schema", "mcp", "page"),
)
