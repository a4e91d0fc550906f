"""What several commands take: options, their names, and how a shell completes them."""
