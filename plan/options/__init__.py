"""Options whose values are more than a number or a name: what drafts, what a prompt may bring."""
