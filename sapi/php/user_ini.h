/* Applies .user.ini files: settings per directory, cached for user_ini.cache_ttl seconds. */
#ifndef SURUS_PHP_USER_INI_H
#define SURUS_PHP_USER_INI_H

void surus_user_ini_activate(const char *script, const char *root);

#endif
