<?php
// Takes its process for some seconds: asleep, as with a slow database, or busy.
$seconds = (float) ($_GET['seconds'] ?? 1);
if (($_GET['how'] ?? '') === 'busy') {
    for ($end = hrtime(true) + $seconds * 1e9; hrtime(true) < $end;) {
    }
} else {
    usleep((int) ($seconds * 1e6));
}
echo 'slow';
