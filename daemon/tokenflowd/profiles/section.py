"""What all sections of a profile have in common."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid")
