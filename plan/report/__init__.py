"""How a plan is shown: one document, and for people facts, tables, notes and charts."""
