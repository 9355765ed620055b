"""KV memory on the device, in pages, and on the host, in tokens. Nothing is ever handed out that is not there."""


class Memory:
    """Holdings are given as token counts; the device rounds each request's up to whole pages."""

    def __init__(self, kv_tokens: int, host_tokens: int, page_tokens: int) -> None:
        self.page_tokens = page_tokens
        self.kv_total_tokens = kv_tokens // page_tokens * page_tokens
        self.host_total_tokens = host_tokens
        self.kv_free_tokens = self.kv_total_tokens
        self.host_free_tokens = host_tokens

    def size_tokens(self, tokens: int) -> int:
        """Whole pages, in tokens."""
        return -(-tokens // self.page_tokens) * self.page_tokens

    def most_growth_tokens(self, held_tokens: int, reserve_tokens: int = 0) -> int:
        """By how much one request that holds `held_tokens` can grow, if `reserve_tokens` stay free."""
        spare = max(self.kv_free_tokens - reserve_tokens, 0) // self.page_tokens * self.page_tokens
        return spare + self.size_tokens(held_tokens) - held_tokens

    def resize(self, held_tokens: int, tokens: int) -> None:
        """One request holds `tokens` from now on. Growth must fit."""
        self.kv_free_tokens -= self.size_tokens(tokens) - self.size_tokens(held_tokens)
        assert 0 <= self.kv_free_tokens <= self.kv_total_tokens, self.kv_free_tokens

    def take_pages(self, tokens: int) -> None:
        """Several requests have grown by `tokens` in whole pages together."""
        assert tokens % self.page_tokens == 0
        self.kv_free_tokens -= tokens
        assert self.kv_free_tokens >= 0, self.kv_free_tokens

    def take_host(self, tokens: int) -> None:
        self.host_free_tokens -= tokens
        assert self.host_free_tokens >= 0, self.host_free_tokens

    def give_host(self, tokens: int) -> None:
        self.host_free_tokens += tokens
        assert self.host_free_tokens <= self.host_total_tokens

    @property
    def is_all_free(self) -> bool:
        """Nobody holds anything: how every run must end."""
        return self.kv_free_tokens == self.kv_total_tokens and self.host_free_tokens == self.host_total_tokens
