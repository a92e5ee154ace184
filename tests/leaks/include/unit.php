<?php
class LeakUnit
{
}
