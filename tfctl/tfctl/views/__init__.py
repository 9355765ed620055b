"""Documents as text for people: pure functions from a document and a look to lines."""
