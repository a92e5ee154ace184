"""What is read from wrk."""

import os
import subprocess
import unittest
from types import SimpleNamespace
from unittest.mock import patch

import load
from contestants import CONTESTANTS
from pages import PAGES

REPORT = """Running 2s test @ http://127.0.0.1:8080/hello.php
  1 threads and 4 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency    267.80us   95.11us   2.10ms   96.20%
    Req/Sec    18.80k     1.10k   20.10k    80.00%
  Latency Distribution
     50%   48.00us
     75%   55.00us
     90%   84.00us
     99%  305.00us
  40000 requests in 2.00s, 3.10MB read
Requests/sec:  20000.00
Transfer/sec:      3.10MB
"""


class StandIn:
    contestant = next(contestant for contestant in CONTESTANTS if not contestant.php_process)
    app = SimpleNamespace(host="")

    def pids(self) -> list[int]:
        return [os.getpid()]

    def url(self, page) -> str:
        return "http://127.0.0.1:8080/hello.php"


class TheMean(unittest.TestCase):
    def test_is_that_of_the_answers_there_were(self):
        done = subprocess.CompletedProcess([], 0, REPORT, "")
        with patch.object(load.subprocess, "run", return_value=done):
            read = load.load(StandIn(), PAGES[0], 4, 2)
        # Four connections have had 20,000 answers in each of two seconds, each one every 200 us: whatever wrk's mean is.
        self.assertEqual(read.mean_us, 200.0)
        self.assertEqual((read.p50_us, read.p99_us), (48.0, 305.0))


if __name__ == "__main__":
    unittest.main()
