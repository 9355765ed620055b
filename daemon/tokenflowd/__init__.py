"""The daemon: runs and watches the engine, keeps its state, serves the control socket."""
