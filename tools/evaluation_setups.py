"""What docs/evaluation.md is made of: every table as a list of `tfctl simulate` command lines."""

from collections.abc import Sequence
from dataclasses import dataclass, field

ALL = (
    "tokenflow", "paper", "guide", "fcfs", "chunked", "sglang-priority", "andes", "mlfq", "pascal", "disaggregated",
)  # fmt: skip
OURS_AND_BEST = ("tokenflow", "fcfs", "chunked", "andes")
OURS = frozenset({"tokenflow", "paper", "guide"})
SEEDS = (1, 2, 3)
DATA = "../shared/data"
_RATE = ("--rates", "20", "--decision-pause-ms", "50")
ONE_GPU = ("tokenflow", "paper", "guide", "fcfs", "chunked", "andes", "mlfq")


@dataclass(frozen=True, slots=True)
class Case:
    """One command line. `paper` is what the paper prints for it, where it does; `ours` are options that concern the
    variants of our own policy alone, so that runs of others without them are the same."""

    title: str
    arguments: tuple[str, ...]
    policies: Sequence[str] = ALL
    seeds: Sequence[int] = SEEDS
    paper: str = ""
    ours: tuple[str, ...] = ("--mixed-steps",)

    @property
    def command(self) -> list[str]:
        """Without the program's name."""
        words = ["simulate", *self.arguments]
        if not OURS.isdisjoint(self.policies):
            words += self.ours
        for policy in self.policies:
            words += ["--policy", policy]
        for seed in self.seeds:
            words += ["--seed", str(seed)]
        return words


@dataclass(frozen=True, slots=True)
class Table:
    """`key` names it on the command line and its file of results."""

    key: str
    title: str
    text: str
    cases: Sequence[Case] = field(default_factory=tuple)
    is_comparison: bool = False  # says how `tokenflow` stands to the others


def _h200(memory: str) -> tuple[str, ...]:
    return ("--gpu", "h200", "--model", "llama3-8b", "--mem-fraction", memory, "--host-gb", "512", *_RATE)


_RTX4090 = ("--gpu", "rtx4090", "--kv-tokens", "41408", "--chunk-tokens", "2048", "--host-gb", "64", *_RATE)
_S_L = ("--input-tokens", "normal:512", "--output-tokens")
_L_L = ("--input-tokens", "normal:1024", "--output-tokens")


def _rtx4090() -> list[Case]:
    s_l = (*_RTX4090, *_S_L, "normal:2048")
    return [
        Case("(a)", (*s_l, "--arrivals", "burst:60")),
        Case("(b)", (*_RTX4090, *_L_L, "normal:2048", "--arrivals", "burst:80")),
        Case("(c)", (*s_l, "--arrivals", "poisson:2", "--requests", "150")),
        Case("(d)", (*s_l, "--arrivals", "poisson:4", "--requests", "150")),
    ]


def _h200_cases() -> list[Case]:
    cases = []
    for memory in ("0.3", "0.88"):
        s_l = (*_h200(memory), *_S_L, "normal:4096")
        cases += [
            Case(f"(a), {memory}", (*s_l, "--arrivals", "burst:400"), ONE_GPU),
            Case(f"(b), {memory}", (*_h200(memory), *_L_L, "normal:4096", "--arrivals", "burst:200"), ONE_GPU),
            Case(f"(c), {memory}", (*s_l, "--arrivals", "poisson:5", "--requests", "300"), ONE_GPU),
            Case(f"(d), {memory}", (*s_l, "--arrivals", "poisson:10", "--requests", "300"), ONE_GPU),
        ]
    return cases


def _varied(
    base: tuple[str, ...], title: str, option: str, values: Sequence[str], policies: Sequence[str]
) -> list[Case]:
    return [Case(f"{title} {value}", (*base, *option.format(value).split()), policies) for value in values]


_BASE = (*_RTX4090, *_S_L, "normal:2048", "--arrivals", "burst:60")
_B = (*_RTX4090, *_L_L, "normal:2048", "--arrivals", "burst:80")
_LARGE_BURST = (*_h200("0.3"), *_L_L, "normal:4096", "--arrivals", "burst:200")
_POISSON = (*_h200("0.3"), *_S_L, "normal:4096", "--arrivals", "poisson:10", "--requests", "300")
TOLD = ("tokenflow", "fcfs", "sglang-priority")
_STEADY = ("--gpu", "h200", "--model", "llama3-8b", "--mem-fraction", "0.3", "--host-gb", "512", "--max-running", "128",
           *_RATE, *_S_L, "normal:1024", "--requests", "600")  # fmt: skip
_SCALE = ("--gpu", "h200", "--model", "llama3-8b", "--mem-fraction", "0.3", "--host-gb", "512", *_RATE,
          "--input-tokens", "normal:256", "--output-tokens", "normal:128", "--requests", "100000")  # fmt: skip
_TRACES = f"{DATA}/traces"

_TRACED_4090 = (*_RTX4090, "--arrivals")


def _traced(title: str, base: tuple[str, ...], file: str, *more: str) -> Case:
    return Case(title, (*base, f"trace:{_TRACES}/{file}", *more), OURS_AND_BEST, seeds=(1,))


_CONVERSATION, _CODE = "AzureLLMInferenceTrace_conv.csv.gz", "AzureLLMInferenceTrace_code.csv.gz"
_BURSTGPT, _SHAREGPT = "burstgpt1_p90_5min.csv", "sharegpt_llama31_300req_lengths.csv"
_MOONCAKE = "mooncake_conversation_trace.jsonl.gz"
_LARGE = ("--gpu", "h200", "--model", "qwen2.5-32b", "--host-gb", "512", *_RATE, "--arrivals")

TABLES = (
    Table(
        "rtx4090",
        "The paper's controlled set-ups: RTX 4090",
        "Normal lengths with a deviation of a quarter of the mean; input 512 (S) or 1024 (L), output 2048; readers at "
        "20 tok/s (the paper tests 10 to 30 and does not say which here); 150 requests for the Poisson set-ups (it "
        "does not say how many). The 41,408 KV tokens that vLLM measured on this GPU, 64 GB of host memory.",
        _rtx4090(),
        is_comparison=True,
    ),
    Table(
        "h200",
        "The paper's controlled set-ups: H200",
        "As above with output 4096 and 300 requests for the Poisson set-ups, for the paper's memory fraction of 0.3 "
        "and for 0.88; 512 GB of host memory.",
        _h200_cases(),
        is_comparison=True,
    ),
    Table(
        "rates",
        "Mixed and other reading rates",
        "The burst of 60 on the RTX 4090 (set-up a).",
        [
            Case("15 (40 %) and 20 (60 %)", (*_BASE, "--rates", "15:0.4,20:0.6"), OURS_AND_BEST),
            *_varied(_BASE, "all at", "--rates {}", ("20", "25", "30"), OURS_AND_BEST),
            *_varied(_BASE, "people:", "--rates {}", ("4.8", "6.7"), OURS_AND_BEST),
        ],
        is_comparison=True,
    ),
    Table(
        "traces",
        "Recorded arrivals and lengths",
        "The first 600 requests of Azure's conversations of 2023 at four times their speed and of its code requests, "
        "five minutes of BurstGPT at eight times their speed, 300 ShareGPT requests at 10 a second, the first 300 of "
        "Mooncake's conversations. (The paper's long run is BurstGPT on an H200 with Qwen2.5-32B.) Nothing of them is "
        "drawn: one seed says it all. The files are read from ../shared/data and are not part of this repository.",
        [
            _traced("Azure conversation x4, RTX 4090", _TRACED_4090, _CONVERSATION, "--speedup", "4", "-n", "600"),
            _traced("Azure code, RTX 4090", _TRACED_4090, _CODE, "-n", "600"),
            _traced("BurstGPT x8, RTX 4090", _TRACED_4090, _BURSTGPT, "--speedup", "8"),
            _traced("ShareGPT 300, RTX 4090", _TRACED_4090, _SHAREGPT),
            _traced("Azure conversation x4, Qwen2.5-32B, H200", _LARGE, _CONVERSATION, "--speedup", "4", "-n", "600"),
            _traced("BurstGPT x8, Qwen2.5-32B, H200", _LARGE, _BURSTGPT, "--speedup", "8"),
            _traced("Mooncake conversation, H200", (*_h200("0.88"), "--arrivals"), _MOONCAKE, "-n", "300"),
        ],
        is_comparison=True,
    ),
    Table(
        "sensitivity",
        "Sensitivity: safety factor and quantum",
        "Set-up (a) on the RTX 4090. The paper's conservativeness is our safety factor; its rescheduling interval has "
        "no exact twin, the quantum is the nearest.",
        [
            *_varied(_BASE, "safety factor", "--tune safety_factor={}", ("1", "1.5", "3", "20"), ("tokenflow",)),
            *_varied(_BASE, "quantum s", "--tune quantum_s={}", ("0.5", "1", "3", "6", "12"), ("tokenflow",)),
        ],
    ),
    Table(
        "told",
        "What schedulers are told of lengths",
        "In all other tables each request asks for as many tokens as its answer has, so that who looks at `max_tokens` "
        "knows its length: for us a tenth of it is far ahead (no more than 10 s, though), `fcfs` and "
        "`sglang-priority` reserve memory by it. Here clients ask for more: set-up (a) on the RTX 4090 (answers of "
        "about 2,048 tokens) and (b) and (d) on the H200 at 0.3 (4,096).",
        [
            Case("4090 (a), true lengths", _BASE, TOLD),
            *_varied(_BASE, "4090 (a), max_tokens", "--max-tokens {}", ("4096", "16384"), TOLD),
            Case("H200 (b), true lengths", _LARGE_BURST, TOLD[:2]),
            *_varied(_LARGE_BURST, "H200 (b), max_tokens", "--max-tokens {}", ("16384",), TOLD[:2]),
            Case("H200 (d), true lengths", _POISSON, TOLD[:2]),
            *_varied(_POISSON, "H200 (d), max_tokens", "--max-tokens {}", ("16384",), TOLD[:2]),
        ],
    ),
    Table(
        "steps",
        "Steps of their own for prompts, or mixed ones",
        "In all other tables those who run get a token in steps with prefill too (`--mixed-steps`, SGLang's "
        "`--enable-mixed-chunk`), in chunks of 2,048 tokens. Here with SGLang's default, where a step with prefill "
        "decodes nobody, and chunks are 8,192 tokens on the H200.",
        [
            Case(f"{gpu} {name}, {kind}", base, ("tokenflow",), ours=ours)
            for gpu, name, base in (("4090", "(a)", _BASE), ("H200", "(b)", _LARGE_BURST), ("H200", "(d)", _POISSON))
            for kind, ours in (("mixed", ("--mixed-steps",)), ("of their own", ()))
        ],
    ),
    Table(
        "ablations",
        "Ablations",
        "Set-up (b) on the RTX 4090; `makespan` is the paper's completion time. No offload: no host memory. No "
        "write-through: `write_through=false`. No overlap: the GPU waits for every copy. Ahead: others decode while "
        "somebody loads, which SGLang's HiCache does not do.",
        [
            Case("full", _B, ("tokenflow",), paper="66.00 s"),
            Case("no offload", (*_B, "--host-gb", "0"), ("tokenflow",), paper="127.28 s"),
            Case("no write-through", (*_B, "--tune", "write_through=false"), ("tokenflow",), paper="82.76 s"),
            Case("no overlap", (*_B, "--overlap", "none"), ("tokenflow",), paper="74.43 s"),
            Case("loads ahead", (*_B, "--overlap", "ahead"), ("tokenflow",)),
        ],
    ),
    Table(
        "overload",
        "From 0.5 to 2 times capacity",
        "Poisson arrivals on the H200 (128 slots, 0.3 of the memory), answers of 1024 tokens; 10.1 requests a second "
        "are capacity. `demand/Γ` counts live streams only, and below capacity they end long before they are read.",
        _varied(_STEADY, "requests/s:", "--arrivals poisson:{}", ("5", "7.5", "10", "15", "20"), OURS_AND_BEST),
        is_comparison=True,
    ),
    Table(
        "host",
        "Host memory too small",
        "Set-up (b) on the RTX 4090.",
        _varied(_B, "GB:", "--host-gb {}", ("0", "4", "8", "16", "64"), ("tokenflow", "paper")),
    ),
    Table(
        "link",
        "A slow link",
        "Set-up (b) on the RTX 4090, GB/s in each direction.",
        _varied(_B, "GB/s:", "--link-gbs {}", ("26", "12", "6", "3", "1"), ("tokenflow",)),
    ),
    Table(
        "scale",
        "100,000 requests",
        "Short answers on the H200 (256 slots, 0.3 of the memory); 84 requests a second are capacity.",
        [
            Case(f"requests/s: {rate}", (*_SCALE, "--arrivals", f"poisson:{rate}"), ("tokenflow", "fcfs"), seeds=(1,))
            for rate in ("40", "60")
        ],
    ),
)
