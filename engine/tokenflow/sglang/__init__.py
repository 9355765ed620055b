"""The engine side: plugin, link, middleware, CPU stand-ins. Only this package imports sglang."""
