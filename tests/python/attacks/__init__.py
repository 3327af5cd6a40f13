"""Attacks on a running server, and what must hold while they last."""
