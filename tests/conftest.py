"""What several test files share."""

import pytest
import torch


@pytest.fixture
def one_thread():
    """The default of the scripts whose main() sets it for the process: the tests of other files get theirs back."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
