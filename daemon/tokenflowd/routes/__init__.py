"""The control API, `/v1` (docs/api.md). One file a subject; each lists its routes in `ROUTES`."""
