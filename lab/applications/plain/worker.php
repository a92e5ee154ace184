<?php
// The same pages for engines that boot a script.
surus_serve(static fn () => require $_SERVER['SCRIPT_FILENAME']);
