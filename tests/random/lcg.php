<?php
// Only numbers of the generator that PHP itself seeds with the time and the process: by themselves they come fast.
(function () {
    lcg_value();
    surus_serve(function () {
        // Two of them, so that two equal answers cannot be chance; of another worker, they would be another's.
        printf('%.17g %.17g %d', lcg_value(), lcg_value(), getmypid());
    });
})();
