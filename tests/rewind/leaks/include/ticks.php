<?php
declare(ticks=1);
$GLOBALS["leak_ticks"] = 0;
$a = 1;
$b = 2;
$ticks = $GLOBALS["leak_ticks"];
return $ticks;
