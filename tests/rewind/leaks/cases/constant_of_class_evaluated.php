<?php
// A class constant with an expression that needs a definition from a request.
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
