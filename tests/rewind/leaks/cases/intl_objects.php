<?php
// Formatter, calendar, collator and break iterator from the boot.
return [
    'needs' => ['intl'],
    'boot' => function () { $b = IntlBreakIterator::createWordInstance('en'); $b->setText('one two three'); $b->first(); $c = IntlCalendar::createInstance('UTC', 'en'); $c->setTime(0.0); return [new NumberFormatter('en', NumberFormatter::DECIMAL), $c, new Collator('en'), $b]; },
    'set' => function ($boot) { $boot[0]->setAttribute(NumberFormatter::MIN_FRACTION_DIGITS, 4); $boot[1]->add(IntlCalendar::FIELD_YEAR, 1); $boot[2]->setStrength(Collator::PRIMARY); $boot[3]->next(); },
    'see' => fn ($boot) => json_encode([$boot[0]->format(1.5), $boot[1]->getTime(), $boot[2]->getStrength(), $boot[3]->current()]),
];
