"""What `tfctl simulate` does once its options are read."""

import time
from collections.abc import Callable

from tfctl.operations import Reporter, reporter
from tfctl.output import write_json, write_line
from tfctl.session import Session
from tfctl.simulate.files import LineFile
from tfctl.simulate.options import SimulateOptions
from tfctl.simulate.plan import SimulatePlan, simulate_plan
from tfctl.views.simulate import render
from tokenflow.errors import TimedOutError
from tokenflow.policy.plan import Plan
from tokenflow.sim.document import SimulateDocument
from tokenflow.sim.experiment import Outcome, run_one
from tokenflow.sim.html_report import Plots, html_report
from tokenflow.sim.report import decision_lines, request_lines, run_row
from tokenflow.sim.scheduler import Look
from tokenflow.wire import schema_name, stamp

_REPORT_INTERVAL_S = 0.2


def carry_out(session: Session, options: SimulateOptions) -> int:
    """Everything from the checks to the report; the exit code. Raises what stands in the way."""
    plan = simulate_plan(options)
    document = SimulateDocument(
        engine=plan.engine,
        workload=plan.workload,
        tunables=plan.tunables,
        goodput=options.goodput,
        runs=[],
        seed=options.seeds[0] if len(options.seeds) == 1 else None,
    )
    plots: list[Plots] = []
    with (
        LineFile(options.html, "html") as html,
        LineFile(options.requests_out, "requests-out") as requests,
        LineFile(options.events, "events") as events,
        reporter(session) as report,
    ):
        watch = _Watch(session, report, len(options.policies) * len(options.seeds))
        for policy in options.policies:
            for seed in options.seeds:
                outcome = _run(plan, policy, seed, events, watch)
                document.runs.append(run_row(outcome, has_timing=options.has_timing))
                requests.write_lines([*request_lines(outcome)] if requests.is_wanted else [])
                if html.is_wanted:
                    plots.append(Plots.of(outcome))
        _sign(document, has_timing=options.has_timing)
        html.write_text(html_report(document, plots) if html.is_wanted else "")
    if session.as_json:
        write_json(document)
    else:
        for line in render(document, session.look, is_quiet=session.options.quiet):
            write_line(line)
    return 0


def _run(plan: SimulatePlan, policy: str, seed: int, events: LineFile, watch: "_Watch") -> Outcome:
    def write(now_s: float, look: Look, made: Plan) -> None:
        events.write_lines([*decision_lines(policy, seed, now_s, look, made)])

    count = len(plan.setup.requests_of(seed))
    outcome = run_one(
        plan.setup,
        policy,
        seed,
        on_plan=write if events.is_wanted else None,
        on_progress=watch.of(f"{policy}, seed {seed}", count),
    )
    watch.has_ended()
    return outcome


def _sign(document: SimulateDocument, *, has_timing: bool) -> None:
    """The same bytes for the same options: when it was made is said only where times are asked for."""
    if has_timing:
        stamp(document)
    else:
        document.schema = schema_name(type(document))


class _Watch:
    """Tells how far all runs are together, and ends them when the time is up."""

    def __init__(self, session: Session, report: Reporter, run_count: int) -> None:
        self._report = report
        self._run_count = run_count
        self._ended_count = 0
        self._next_s = 0.0
        limit_s = session.options.timeout_s
        self._limit_s = limit_s
        self._end_s = None if limit_s is None else time.monotonic() + limit_s

    def of(self, title: str, request_count: int) -> Callable[[int, float], None]:
        """What one run calls with the number of requests that have ended."""
        self._report(f"{title}", self._ended_count / self._run_count)

        def progress(ended_count: int, now_s: float) -> None:
            wall_s = time.monotonic()
            if self._end_s is not None and wall_s > self._end_s:
                raise TimedOutError(
                    f"the time limit of {self._limit_s:g} s is over in {title}, at {now_s:.0f} simulated seconds",
                    hint="ask for fewer requests, or give it longer: --timeout S",
                )
            if wall_s >= self._next_s:
                self._next_s = wall_s + _REPORT_INTERVAL_S
                share = ended_count / max(request_count, 1)
                self._report(title, (self._ended_count + share) / self._run_count)

        return progress

    def has_ended(self) -> None:
        self._ended_count += 1
