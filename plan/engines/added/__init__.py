"""What a start adds, whatever the engine: drafts, experts over ranks, the host's memory."""
