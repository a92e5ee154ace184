<?php
// The second contestant's message differs, and the hello stays.
echo 'hello and @message@';
