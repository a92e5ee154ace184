<?php
// Draws only from the generator that PHP seeds with the time and the process id, which is fast.
(function () {
    lcg_value();
    surus_serve(function () {
        // Two of them, so that two equal answers cannot be chance; of another worker, they would be another's.
        printf('%.17g %.17g %d', lcg_value(), lcg_value(), getmypid());
    });
})();
