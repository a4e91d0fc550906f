"""The heavy half: plan, stream, verify and evaluate a conversion. Needs the `convert` extra."""
