"""What serving engines make of a KV cache: one module per engine, pure functions of numbers."""
