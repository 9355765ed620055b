"""For programs whose users read along: a stream given out at a reader's pace, its progress reported to the server."""
