"""Imports every module of attacks, which fills the list of them."""

from attacks import (  # noqa: F401
    bodies, connections, encoded, endings, heads, names, ordinary, parameters, sessions_left, streams,
    unread, work,
)
