"""The one load generator: seeded streams against any OpenAI-compatible endpoint, each with a reader at its own pace.

`plan_streams` turns a `Workload` into a list of planned streams, `LoadRun` sends them, `RunResult` holds what was
measured. Importing this package loads nothing heavy; import the module you need.
"""
