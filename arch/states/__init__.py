"""Rows of the types that keep more than keys and values, and what makes their layers."""
