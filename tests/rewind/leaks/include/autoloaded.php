<?php
class LeakAutoloaded
{
    public static $value = "booted";
}
