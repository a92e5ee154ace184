<?php
return 7;
