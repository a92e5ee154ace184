<?php // Only the queues are measured.
