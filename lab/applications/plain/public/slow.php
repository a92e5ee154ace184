<?php
// Takes its process for half a second: asleep, as with a slow database, or busy.
if ('busy' === $_GET['how']) {
    for ($end = hrtime(true) + 500_000_000; hrtime(true) < $end;) {
    }
} else {
    usleep(500_000);
}
echo 'slow';
