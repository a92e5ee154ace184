<?php
// A class constant whose expression could only be evaluated after a request had defined something.
class LeakConstantEvaluated { const VALUE = LEAK_FOR_CLASS_CONSTANT . '!'; }
return [
    'set' => function () { define('LEAK_FOR_CLASS_CONSTANT', 'left'); LeakConstantEvaluated::VALUE; },
    'see' => function () {
        try {
            return LeakConstantEvaluated::VALUE;
        } catch (Error $e) {
            return $e->getMessage();
        }
    },
];
