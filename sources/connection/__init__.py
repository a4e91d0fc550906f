"""A connection to a server: requests, how slowly it may answer, and the proxy before it."""
