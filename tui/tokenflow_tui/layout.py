"""How the parts of the live view lie on the screen, by its size. The classes are set by `LiveView.on_resize`."""

WIDE_CELLS, BESIDE_CELLS = 100, 120  # from here on: panels side by side; the detail beside the table
TALL_LINES, LOW_LINES = 30, 18  # from here on: panels of four lines; below: no panels

CSS = """
Screen { layers: base; }
#header { padding: 0; }
#panels { height: auto; layout: vertical; }
#panels Panel { height: 2; }
.tall #panels Panel { height: 4; }
.wide.tall #panels { layout: horizontal; height: 5; padding: 1 0 0 0; }
.wide.tall #panels Panel { width: 1fr; padding: 0 2 0 0; }
.wide.tall #panels.gpus #gpus { width: 1fr; }
#gpus { display: none; }
.low #panels { display: none; }
#panels.gpus #gpus { display: block; }
.tall #body { padding: 1 0 0 0; }
#body { height: 1fr; }
RequestTable { width: 1fr; background: $background; overflow-x: hidden; scrollbar-size-vertical: 1; }
#side { display: none; width: 1fr; background: $background; scrollbar-size-vertical: 1; }
.detail #side { display: block; }
.detail RequestTable { display: none; }
.beside.detail RequestTable { display: block; }
.beside.detail #side { width: 62; padding: 0 0 0 2; }
.ascii RequestTable, .ascii #side { scrollbar-size-vertical: 0; scrollbar-size-horizontal: 0; }
"""
