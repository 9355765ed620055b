"""The work behind `tfctl bench`: options, plan, files, run and report."""
