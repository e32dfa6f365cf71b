"""Vector figures for a two-column page: each module draws one, from arrays, into a file."""
