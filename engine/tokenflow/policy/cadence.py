"""When the policy is asked, and what is too little to act on: the same in the live engine and in the simulator."""

from typing import Final

IDLE_DECISION_S: Final = 0.1  # with nobody waiting, decisions are about memory and copies to the host only
WRITE_GRAIN_TOKENS: Final = 16  # a shorter piece waits: each one is a node of the tree, and every look-up passes all
